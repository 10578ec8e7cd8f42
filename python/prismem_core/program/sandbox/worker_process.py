"""One confined process from the engine's side: its clock, its channel, the gate for its copies, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading

from prismem_core.errors import CandidateError, LimitError, SandboxError, WorkerLost
from prismem_core.program.sandbox.engine_channel import ChannelClosed, EngineChannel, Meter, WatchedProcess
from prismem_core.program.sandbox.fork_gate import ForkGate
from prismem_core.program.sandbox.frames import FrameError
from prismem_core.program.sandbox.launcher import Launcher, ZygoteGone
from prismem_core.program.sandbox.limits import Budget

_START = Budget(cpu_seconds=30.0, wall_seconds=60.0, ask_calls=0, embed_texts=0)
# What forking copies may cost a process that has no order, in processor seconds for each.
_IDLE_SECONDS = 0.25
_DYING_SECONDS = 1.0


class WorkerProcess:
    """A worker forked by the zygote, or a copy forked by another one on the engine's order.

    `lock` is to be held for whole calls in the process, and is taken for the order of a copy.
    """

    def __init__(
        self,
        pid: int,
        channel: EngineChannel,
        launcher: Launcher,
        gate: ForkGate | None,
        number: int | None,
        family: set[int],
        parent: WorkerProcess | None = None,
    ) -> None:
        """`family` holds the pids of a worker and all its copies that run, `parent` is what a copy was copied from."""
        self.pid = pid
        self.lock = threading.Lock()
        self.channel = channel
        self.clock = WatchedProcess(pid)
        self.sealed = launcher.sealed
        self._launcher = launcher
        self._gate = gate
        self._number = number
        self._family = family
        self._parent = parent
        family.add(pid)
        launcher.running.add(self)
        self._ending = threading.Lock()
        self._ended: str | None = None
        self._death: tuple[int, bool] | None = None
        self._lost: WorkerLost | None = None
        self._owner = os.getpid()
        self._settled = self.clock.cpu_seconds() or 0.0

    @classmethod
    def start(cls, launcher: Launcher, memory_bytes: int) -> WorkerProcess:
        """A new worker that has confined itself; SandboxError if it could not, ZygoteGone with the zygote.

        WorkerLost if it was killed before it had.
        """
        number, connection = launcher.spawn(memory_bytes)
        channel = EngineChannel(connection)
        starting, listener = Meter("starting a worker", _START), None
        try:
            hello, pid, listener = channel.receive_first(starting, listener=True)
            if listener is not None:
                hello = channel.receive(starting)
        except (ChannelClosed, FrameError, LimitError):
            hello, pid = {}, 0
        gate = None if listener is None else ForkGate(listener)
        if hello != {"ready": True}:
            channel.close()
            if gate is not None:
                gate.close()
            if not launcher.alive():
                raise ZygoteGone("the zygote ended while a worker was starting")
            status, by_itself = launcher.end(number, dying=True)
            if by_itself and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                raise WorkerLost("a worker was killed from outside while it started", killed=False)
            raise SandboxError(
                "a worker could not confine itself: a layer that the sandbox had when it started could not be put on; "
                "check that the memory limit is at least 512 MiB, and `prismem doctor`"
            )
        if gate is not None:
            channel.watch(gate)
        return cls(pid, channel, launcher, gate, number, set())

    def copy(self, what: str, meter: Meter) -> WorkerProcess:
        """A copy-on-write copy of the process as it is between two calls.

        Raises CandidateError (`died`, `protocol`), LimitError by `meter`, WorkerLost or SandboxError.
        """
        self.check_usable()
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        channel = EngineChannel(mine)
        try:
            with contextlib.closing(theirs):
                if self._gate is not None:
                    self._watch(channel, self._gate)
                self._order_copy(what, theirs, meter)
            copy = self._await_copy(what, channel, meter)
        except BaseException:
            channel.close()
            raise
        self.settle()
        return copy

    def _watch(self, channel: EngineChannel, gate: ForkGate) -> None:
        try:
            channel.watch(gate)
        except ValueError:
            # Another thread has ended the process meanwhile, and closed its gate.
            self.check_usable()
            raise

    def begin(self, meter: Meter, *, fresh: bool = False) -> None:
        """Before an order: nothing may have happened since the last one; `meter` runs from here on.

        A `fresh` process is clocked from its birth. FrameError or ChannelClosed if the process did not keep still.
        """
        meter.watch(self.clock, fresh=fresh)
        if not fresh:
            self._expect_stillness()

    def settle(self) -> None:
        """After an answer: what the process computes from now on, nobody asked for."""
        self._settled = self.clock.cpu_seconds() or self._settled

    def check_usable(self) -> None:
        """SandboxError in a forked engine, CandidateError if the process has been ended, WorkerLost if it was lost."""
        if self._owner != os.getpid():
            raise SandboxError("a worker cannot be used in a forked process; open a new Sandbox there")
        if self._lost is not None:
            raise WorkerLost(str(self._lost), killed=self._lost.killed)
        if self._ended is not None:
            raise CandidateError("died", f"the worker ended earlier: {self._ended}")

    def death(self, what: str) -> Exception:
        """The failure that stands for a process whose end of the channel is closed; for each thread that sees it."""
        failure = self._failure_of_death(what)
        if isinstance(failure, WorkerLost):
            self._lost = failure
        return failure

    def _failure_of_death(self, what: str) -> Exception:
        ending = self.end("it ended by itself", dying=True)
        if not self._launcher.alive():
            return WorkerLost("the sandbox ended while a memory program was running", killed=False)
        if self._parent is not None and self._parent.has_closed():
            # A copy dies with its parent, whose channel is closed before that.
            return self._parent.death(what)
        if ending is None:
            return CandidateError("died", f"the process ended by itself during {what}")
        status, by_itself = ending
        if not by_itself:
            return CandidateError("protocol", f"the program closed the channel to the engine during {what}")
        if not os.WIFSIGNALED(status):
            how = f"exit status {os.waitstatus_to_exitcode(status)}"
            return CandidateError("died", f"the process ended by itself during {what}: {how}")
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU:
            return LimitError("limit:cpu", f"{what} used more than its processor time")
        if number == signal.SIGKILL:
            return WorkerLost(
                f"the process was killed from outside during {what}, most often because the machine ran out of memory",
                killed=True,
            )
        if number == signal.SIGSYS:
            return CandidateError(
                "died", f"the process was ended during {what}: it made a system call that memory programs may not make"
            )
        return CandidateError("died", f"the process ended by itself during {what}: {signal.Signals(number).name}")

    def end(self, reason: str, *, dying: bool = False) -> tuple[int, bool] | None:
        """Kill the process and its copies once; its wait status and whether it had ended by itself, where it is known.

        Of copies, whose worker must not learn it, only newer kernels tell (`WatchedProcess.wait_status`). One that is
        `dying` gets a moment to end by itself, and how it did is told again to whoever asks later.
        """
        with self._ending:
            if self._ended is not None:
                return self._death if dying else None
            self._ended = reason
            found = self._end(dying)
            if dying:
                self._death = found
            return found

    def has_closed(self) -> bool:
        """Whether the engine ended the process, or it has closed its end of the channel, as it does when it dies."""
        if self._ended is not None:
            return True
        try:
            self.channel.expect_silence()
        except ChannelClosed:
            return True
        except FrameError:
            return False
        return False

    def _end(self, dying: bool) -> tuple[int, bool] | None:
        if self._owner != os.getpid():
            return None
        try:
            if self._number is not None:
                return self._launcher.end(self._number, dying=dying)
            status = self.clock.wait_status(_DYING_SECONDS) if dying else None
            return None if status is None else (status, True)
        except ZygoteGone:
            return None
        finally:
            self.clock.kill()
            self._family.discard(self.pid)
            self._launcher.running.discard(self)
            self.channel.close()
            if self._number is not None and self._gate is not None:
                self._gate.close()

    def drop(self) -> None:
        """Nobody can use the process any more: it is ended with the next order to the zygote.

        For finalizers, which run at any moment and so may wait for nothing.
        """
        self.clock.signal(signal.SIGKILL)
        self._launcher.dropped.append(self)

    def pause(self) -> None:
        """Stop the process where it stands until `resume`."""
        self.clock.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.clock.signal(signal.SIGCONT)

    def private_bytes(self) -> int:
        """Memory that is the process's own, in bytes; 0 once it is gone.

        Where the kernel hides the exact number from the engine's user, all anonymous memory counts, shared pages too.
        """
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as file:
            kilobytes = [int(line.split()[1]) for line in file if line.startswith("Private_")]
            return sum(kilobytes) << 10
        return self.clock.anonymous_bytes()

    def _order_copy(self, what: str, connection: socket.socket, meter: Meter) -> None:
        with meter.engine_time():
            # A running index() is no part of this call.
            self.lock.acquire()
        try:
            self.check_usable()
            self._expect_stillness()
            if self._gate is not None:
                self._gate.allow(self.pid)
            self.channel.send({"op": "copy"}, meter, connection.fileno())
        except ChannelClosed:
            raise self.death(what) from None
        except FrameError as error:
            self.end(str(error))
            raise CandidateError("protocol", f"{what}: {error}") from None
        finally:
            self.lock.release()

    def _await_copy(self, what: str, channel: EngineChannel, meter: Meter) -> WorkerProcess:
        try:
            hello, pid, _ = channel.receive_first(meter)
            if hello == {"unforked": True} and pid == self.pid:
                used = self._gate is not None and not self._gate.revoke(self.pid)
                failure = self._unforked()
                if used and isinstance(failure, CandidateError):
                    raise FrameError("the program forked a process of its own in place of a copy")
                raise failure
            # Another copy may have taken the order from the socket that it shares with its parent.
            if hello != {"ready": True} or pid in self._family or not self._forked():
                raise FrameError("a copy did not announce itself")
            return WorkerProcess(pid, channel, self._launcher, self._gate, None, self._family, self)
        except ChannelClosed:
            with contextlib.suppress(ChannelClosed, FrameError):
                self._expect_stillness()
                if not self._forked():
                    # A process that is being killed closes what it holds one by one: this may be what was seen first.
                    failure = self.death(what)
                    if isinstance(failure, WorkerLost):
                        raise failure from None
                raise CandidateError("died", f"a copy of the process ended before {what}") from None
            raise self.death(what) from None
        except (FrameError, LimitError) as error:
            # A process that nobody knows of may stand behind it.
            self.end(str(error))
            if isinstance(error, LimitError):
                raise
            raise CandidateError("protocol", f"{what}: {error}") from None

    def _forked(self) -> bool:
        """Whether the process has made a copy for one more order; a permission left over would serve for another."""
        return self._gate is None or self._gate.claim(self.pid)

    def _expect_stillness(self) -> None:
        self.channel.expect_silence()
        if (self.clock.cpu_seconds() or 0.0) - self._settled > _IDLE_SECONDS:
            raise FrameError("the program went on computing after its call had ended")

    def _unforked(self) -> Exception:
        """Whose fault it is that the process could not fork: the machine's if the zygote cannot either."""
        try:
            number, connection = self._launcher.spawn(1 << 30)
            connection.close()
            self._launcher.end(number)
        except (SandboxError, ZygoteGone) as error:
            return SandboxError(f"no copy of a worker could be made: {error}")
        return CandidateError("died", "the program's process could not be copied: it used up its processes or memory")
