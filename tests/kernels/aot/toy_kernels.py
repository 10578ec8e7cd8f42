"""Small kernels with faults that the rules must see."""

import triton
import triton.language as tl

from prismem_core.kernels.triton.launch import Variant


@triton.jit
def scores(q_ptr, x_ptr, out_ptr, N, D, BQ: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, DOT: tl.constexpr):
    rows = tl.arange(0, BQ)
    keys = tl.program_id(0) * BN + tl.arange(0, BN)
    sums = tl.zeros((BQ, BN), tl.float32)
    for start in range(0, D, BD):
        dims = start + tl.arange(0, BD)
        q = tl.load(q_ptr + rows[:, None] * D + dims[None, :])
        x = tl.load(x_ptr + keys[:, None] * D + dims[None, :])
        if DOT:
            sums = tl.dot(q, x.T, sums)
        else:
            sums += tl.sum(q.to(tl.float32)[:, None, :] * x.to(tl.float32)[None, :, :], 2)
    tl.store(out_ptr + rows[:, None] * N + keys[None, :], sums)


SIGNATURE = {"q_ptr": "*fp16", "x_ptr": "*fp16", "out_ptr": "*fp32", "N": "i32", "D": "i32"}
TILE = {"BQ": 64, "BN": 64, "BD": 64, "DOT": True}


def variants(sm: int) -> list[Variant]:
    def toy(name: str, tile: dict[str, object], aligned: tuple[str, ...] = tuple(SIGNATURE), **more: object) -> Variant:
        settings = {"warps": 4, "stages": 3, "batched": True, **more}
        return Variant(f"toys/{name}", "toys", scores, SIGNATURE, tile, aligned, **settings)

    return [
        toy("sound", TILE),
        toy("unaligned", TILE, ("q_ptr",)),
        toy("no tensor cores", {**TILE, "BQ": 16, "BN": 16, "BD": 16, "DOT": False}),
        toy("spills", {**TILE, "BQ": 256, "BN": 128, "BD": 32}, warps=4),
        toy("shared memory", {**TILE, "BQ": 128, "BN": 128, "BD": 128}, warps=8, stages=6),
        toy("short", {**TILE, "BQ": 16}),
        toy("short with a reason", {**TILE, "BQ": 16}, notes={"mma": "a warp group takes 64 rows at once"}),
        toy("missing", {"BQ": 64, "BN": 64, "BD": 64}),
        toy("unknown", {**TILE, "BK": 64}),
    ]


if __name__ == "__main__":
    import json
    from dataclasses import asdict

    from prismem_core.kernels.triton.aot import compile_variant

    for sm in (80, 90):
        for variant in variants(sm):
            print(json.dumps(asdict(compile_variant(variant, sm))), flush=True)
