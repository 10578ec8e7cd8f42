"""The table of labels that a model gave to the training and validation questions."""

from __future__ import annotations

from prismem_core.runs.report.contents import Contents
from prismem_core.runs.report.tables import Table
from prismem_core.tasks.capability import CAPABILITIES


def annotation_tables(report: Contents) -> list[Table]:
    """How often each capability is primary and secondary; no table where rules gave the labels."""
    found = report.data["annotation"]
    if found is None:
        return []
    rows = [(str(c), str(found["primary"][c]), str(found["secondary"][c])) for c in CAPABILITIES]
    count, fallen_back = found["questions"], found["fallen_back"]
    note = f"By {found['annotator']}. {found['agreeing']} of {count} primaries are those of the native types."
    if fallen_back:
        first, problem = next(iter(fallen_back.items()))
        note += (
            f" {len(fallen_back)} had no valid annotation and keep their native type's, without secondaries (first: "
            f"{first}: {problem})."
        )
    title = "Labels of the training and validation questions"
    return [Table(title, ("capability", "primary", "secondary"), tuple(rows), note)]
