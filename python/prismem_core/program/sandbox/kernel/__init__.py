"""What the Linux kernel can be asked to forbid a process, one layer a module, through ctypes alone.

These modules import the standard library and each other, because the zygote loads them without the package around it.
A step that fails raises OSError; what a missing layer means is for the caller to decide.
"""
