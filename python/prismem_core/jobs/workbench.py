"""A workbench: everything that evaluating programs on a data set needs, opened together and closed together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import TracebackType

from prismem_core.cache import ExecutionCache
from prismem_core.clients.offline import offline_roles
from prismem_core.errors import SettingsError
from prismem_core.evaluation.evaluate import Evaluator
from prismem_core.evaluation.judge import LexicalJudge
from prismem_core.evaluation.judges import ModelJudge, judge_identity
from prismem_core.evaluation.scoring import JudgeScoring, OfflineScoring, Scoring
from prismem_core.evolution.catalog_designer import CatalogDesigner
from prismem_core.evolution.designer import Designer
from prismem_core.evolution.prompted_designer import PromptedDesigner
from prismem_core.jobs.isolation import CheckedPipeline, CheckedSandbox, Confinement, confine
from prismem_core.jobs.model_tables import spec_of
from prismem_core.jobs.models import ModelClients, job_models, ledger_role
from prismem_core.jobs.settings import JobSettings
from prismem_core.ops.screened import check_device
from prismem_core.pipeline.pipeline import Pipeline, Progress
from prismem_core.roles.account import Account
from prismem_core.roles.cached import CachedChat, CachedEmbedder
from prismem_core.roles.ledger import ENGINE, Ledger
from prismem_core.roles.protocols import Chat, Embedder
from prismem_core.roles.roles import Roles
from prismem_core.tasks.task import Dataset

CALL_STAGES = ("extract", "plan", "answer", "ask", "embed", "judge", "reflect", "code", "route", "annotate")


class Workbench:
    """Cache, ledger, roles behind the cache, sandbox and evaluator for one data set; a context manager.

    `cache_directory` None keeps the cache in memory, `ledger_path` None the ledger. `confinement` is where programs
    run, and is closed with the workbench; None opens one as the settings require. `known` are the tasks that a score
    may know of (those of training and validation), None for all. With `lasting` calls are made after others have
    failed, too.
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
        known: Collection[str] | None = None,
        lasting: bool = False,
    ) -> None:
        if settings.device != "cpu":
            check_device(settings.device)
        self.dataset = dataset
        self.settings = settings
        self._lasting = lasting
        self.cache = ExecutionCache(
            cache_directory, memory_bytes=settings.cache_mib << 20, disk_bytes=settings.cache_bytes
        )
        try:
            self.ledger = Ledger(ledger_path)
            self.clients = ModelClients(settings)
            self.budget = self.clients.budget(settings, self.ledger)
            self.roles: Roles = make_roles(settings, self.cache, self.clients)
            self.confinement = confinement or confine(settings.sandbox_require, interface=settings.interface)
            self.sandbox = self.confinement.sandbox
        except BaseException:
            self.cache.close()
            raise
        self.chat = chat = self._cached("task", self.roles.chat)
        embedder = CachedEmbedder(self.roles.embedder, self.cache, self.ledger, budget=self.budget)
        self.embedder = embedder
        own = self.clients.embedder is None
        self.diagnostic_embedder: Embedder = self.roles.diagnostic_embedder if own else embedder
        measured = Account(ENGINE, self.ledger, self.budget).on_gpu
        parts = (chat, embedder, self.cache, self.sandbox, settings.pipeline(), progress, self.ledger, measured)
        if isinstance(self.sandbox, CheckedSandbox):
            self.pipeline: Pipeline = CheckedPipeline(*parts, checked=self.sandbox)
        else:
            self.pipeline = Pipeline(*parts)
        self.evaluator = Evaluator(self.pipeline, dataset, self.roles.judge, self._scoring(known), self.pipeline.clock)

    def designer(self) -> Designer:
        """Who revises programs: the catalogue, or the models of reflection and coding."""
        reflection, coding = self.clients.chats["reflection"], self.clients.chats["coding"]
        if reflection is None or coding is None:
            if reflection is not coding:
                raise SettingsError(
                    "a designer needs both a reflection and a coding model; name them together with --designer, or "
                    "each in [models.reflection] and [models.coding]"
                )
            return CatalogDesigner()
        return PromptedDesigner(
            self._cached("reflection", reflection),
            self._cached("coding", coding),
            self.diagnostic_embedder,
            retries=self.settings.output_retries,
            max_tokens=self.clients.max_tokens("reflection"),
            coding_tokens=self.clients.max_tokens("coding"),
            prompt_chars=self.settings.prompt_chars,
        )

    def annotator(self) -> CachedChat | None:
        """The model that labels questions; None where rules do."""
        chat = self.clients.chats["annotator"]
        return None if chat is None else self._cached("annotator", chat)

    def relabel(self, dataset: Dataset) -> None:
        """Evaluate on the same data set with other labels from now on."""
        self.dataset = dataset
        scoring, clock = self.evaluator.scoring, self.pipeline.clock
        self.evaluator = Evaluator(self.pipeline, dataset, self.roles.judge, scoring, clock)

    def _scoring(self, known: Collection[str] | None) -> Scoring:
        chat, score = self.clients.chats["judge"], self.settings.score
        if score == "offline" or (score == "auto" and chat is None):
            return OfflineScoring(self.dataset, known)
        if chat is None:
            return JudgeScoring(self.roles.judge)
        judge = self._cached("judge", chat)
        self.pipeline.clock.watch(judge.meter)
        tokens = self.clients.max_tokens("judge")
        return JudgeScoring(ModelJudge(judge, retries=self.settings.output_retries, max_tokens=tokens))

    def _cached(self, role: str, chat: Chat) -> CachedChat:
        return CachedChat(
            chat,
            self.cache,
            self.ledger,
            workers=self.settings.workers,
            role=ledger_role(role),
            budget=self.budget,
            lasting=self._lasting,
            temperature=self.clients.models[role].temperature,
        )

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
        self.clients.close()
        self.ledger.close()
        self.cache.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_roles(
    settings: JobSettings, cache: ExecutionCache | None = None, clients: ModelClients | None = None
) -> Roles:
    """The roles of the pipeline: the models' clients, the embedded default where a role has none, the lexical judge.

    Raises SettingsError where an extra they need is missing.
    """
    chat = None if clients is None else clients.chats["task"]
    embedder = None if clients is None else clients.embedder
    offline = offline_roles(
        cache,
        settings.workers,
        embedder=offline_embedder(settings) if embedder is None else "hashing",
        reranker=settings.reranker and chat is None,
        quiet=chat is not None and embedder is not None,
    )
    return Roles(chat or offline.chat, embedder or offline.embedder, offline.judge, offline.diagnostic_embedder)


def role_identities(settings: JobSettings) -> dict[str, str]:
    """What each role calls itself, for run records; nothing is opened for it."""
    models = job_models(settings)
    named = {role: model.identity_of(spec_of(role, model)) for role, model in models.items()}
    remote = {role for role, model in models.items() if spec_of(role, model).kind != "offline"}
    offline = offline_roles(
        None,
        settings.workers,
        embedder="hashing" if "embedding" in remote else offline_embedder(settings),
        reranker=settings.reranker and "task" not in remote,
        quiet=True,
    )
    embedder = named["embedding"] if "embedding" in remote else offline.embedder.identity
    return {
        "chat": named["task"] if "task" in remote else offline.chat.identity,
        "embedder": embedder,
        "judge": judge_identity(named["judge"]) if "judge" in remote else offline.judge.identity,
        "diagnostic_embedder": embedder if "embedding" in remote else offline.diagnostic_embedder.identity,
        **{role: named[role] for role in ("reflection", "coding", "annotator") if role in remote},
    }


def scoring_identity(settings: JobSettings, judge: str) -> str:
    """What the score that drives selection calls itself, where the judge calls itself `judge`."""
    judged = settings.score == "judge" or (settings.score == "auto" and judge != LexicalJudge.identity)
    return f"judge score ({judge})" if judged else OfflineScoring.identity


def offline_embedder(settings: JobSettings) -> str:
    """The name of the embedded embedder that the settings ask for."""
    name = settings.model("embedding").model
    return "auto" if name == "offline" else name
