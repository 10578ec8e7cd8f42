"""Kernels for GPUs: Triton and CUDA twins of the ops, chosen by `prismem_core.ops` for arrays that live on a device."""
