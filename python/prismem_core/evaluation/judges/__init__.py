"""Judges that are models: what each benchmark has them asked, how replies are read and made into a score."""

from prismem_core.evaluation.judges.model_judge import ModelJudge

__all__ = ["ModelJudge"]
