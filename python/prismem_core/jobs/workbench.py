"""A workbench: everything that evaluating programs on a data set needs, opened together and closed together."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from prismem_core.cache import ExecutionCache
from prismem_core.clients.offline import offline_roles
from prismem_core.evaluation.evaluate import Evaluator
from prismem_core.evaluation.scoring import JudgeScoring, OfflineScoring, Scoring
from prismem_core.jobs.isolation import CheckedPipeline, CheckedSandbox, Confinement, confine
from prismem_core.jobs.settings import JobSettings
from prismem_core.ops.screened import check_device
from prismem_core.pipeline.pipeline import Pipeline, Progress
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import Ledger
from prismem_core.roles.roles import Roles
from prismem_core.tasks.task import Dataset

CALL_STAGES = ("extract", "plan", "answer", "ask", "embed")


class Workbench:
    """Cache, ledger, roles behind the cache, sandbox and evaluator for one data set; a context manager.

    `cache_directory` None keeps the cache in memory, `ledger_path` None the ledger. `confinement` is where programs
    run, and is closed with the workbench; None opens one as the settings require.
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: JobSettings,
        *,
        cache_directory: Path | None = None,
        ledger_path: Path | None = None,
        progress: Progress | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        if settings.device != "cpu":
            check_device(settings.device)
        self.dataset = dataset
        self.settings = settings
        self.cache = ExecutionCache(
            cache_directory, memory_bytes=settings.cache_mib << 20, disk_bytes=settings.cache_bytes
        )
        try:
            self.ledger = Ledger(ledger_path)
            self.roles: Roles = make_roles(settings, self.cache)
            self.confinement = confinement or confine(settings.sandbox_require, interface=settings.interface)
            self.sandbox = self.confinement.sandbox
        except BaseException:
            self.cache.close()
            raise
        chat = CachedChat(self.roles.chat, self.cache, self.ledger, workers=settings.workers)
        embedder = CachedEmbedder(self.roles.embedder, self.cache, self.ledger)
        parts = (chat, embedder, self.cache, self.sandbox, settings.pipeline(), progress, self.ledger)
        if isinstance(self.sandbox, CheckedSandbox):
            self.pipeline: Pipeline = CheckedPipeline(*parts, checked=self.sandbox)
        else:
            self.pipeline = Pipeline(*parts)
        scoring: Scoring = OfflineScoring(dataset) if settings.score == "offline" else JudgeScoring(self.roles.judge)
        self.evaluator = Evaluator(self.pipeline, dataset, self.roles.judge, scoring)

    def usage(self) -> tuple[int, int, int]:
        """Calls made by the run so far, then what this process asked for and what of it the cache answered."""
        made = sum(usage.calls for usage in self.ledger.totals().values())
        counters = [c for stage, c in self.cache.counters().items() if stage in CALL_STAGES]
        hits = sum(c.hits + c.waits for c in counters)
        return made, hits + sum(c.stores for c in counters), hits

    def close(self) -> None:
        """End the workers, then close the ledger and the cache."""
        self.pipeline.close()
        self.sandbox.close()
        self.ledger.close()
        self.cache.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_roles(settings: JobSettings, cache: ExecutionCache | None = None, *, quiet: bool = False) -> Roles:
    """The roles that the settings name; raises SettingsError where an extra they need is missing.

    `quiet` logs nothing of what stands in for what: for a look at the identities before the roles are put to work.
    """
    return offline_roles(cache, settings.workers, embedder=settings.embedder, reranker=settings.reranker, quiet=quiet)
