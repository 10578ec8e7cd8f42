"""Attacks that must leak in the control run without kernel layers: one that does nothing there proves nothing.

On x86-64, whose system calls the programs number.
"""

from __future__ import annotations

# First word of the names: the rest of each.
_NAMES = {
    "channel": "exit_status parent_limits parent_priority shared_mapping signal_to_parent sysv_memory sysv_message",
    "ctypes": "exec_memory",
    "eval": "exec_compile",
    "exec": "mprotect pkey_mprotect shared_library",
    "file": (
        "access chdir chmod codecs_through_json getdents import_again link list_root mkdir mkfifo "
        "open_builtin openat2 proc_engine_command proc_maps readlink rename stat statfs "
        "statx subclasses_walk symlink truncate unlink utime write_tofile"
    ),
    "import": "dunder os through_globals",
    "info": "clock_of_others machine",
    "kern": "events inotify membarrier",
    "net": "listen netlink tcp_connect tcp_fast_open udp unix_abstract",
    "proc": (
        "affinity clone3 clone_files clone_parent daemon exec_shell fork_in_copy_hook fork_in_index "
        "fork_twice fork_unordered posix_spawn priority scheduler session signal_all signal_descriptor "
        "signal_engine signal_low_numbers signal_queue signal_thread"
    ),
    "undo": "dumpable filter limits parent_death root subreaper",
    "unicode": "identifier",
}

LEAK = frozenset(f"{kind}_{name}" for kind, names in _NAMES.items() for name in names.split())
"""As root and as an ordinary user, on every system."""

_NAMESPACES = frozenset(f"ns_{name}" for name in ("chroot", "enter", "mount", "pivot", "user")) | {
    "net_raw_in_namespace",
    "proc_clone_namespaces",
}
_KEYS = frozenset({"kern_add_key", "kern_keyctl"})
_TRACING = frozenset({"file_proc_engine_environment", "proc_read_engine", "proc_trace_engine"})

LEAK_TOGETHER = {"root": (_NAMESPACES, _KEYS), "ordinary": (_NAMESPACES, _KEYS, _TRACING)}
"""All of a set or none, as the system allows user namespaces, keys of the kernel, and tracing of other processes."""

# Not named are attacks that the limit of open files stops (channel_memfd_offset, channel_pipe, channel_socketpair,
# file_numpy_fromfile, proc_take_descriptor), what a kernel may lack or refuse by itself (exec_thirty_two_bit,
# file_handle, file_xattr, kern_perf, kern_secret_memory, kern_userfaultfd, undo_personality), and what depends on who is
# quicker (channel_parent_listens, channel_steal_order, proc_many_forks, proc_threads).
