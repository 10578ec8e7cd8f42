"""Judges that are models: what each benchmark has them asked, how replies are read and made into a score."""

from prismem_core.evaluation.judges.model_judge import ModelJudge, judge_identity

__all__ = ["ModelJudge", "judge_identity"]
