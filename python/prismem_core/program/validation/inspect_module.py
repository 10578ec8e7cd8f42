"""Read a loaded program's schemas, instructions and methods; refuse what breaks the contract (validation, steps 7-10).

Runs in the worker after the module was executed, so it imports nothing but the interface and the errors.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any

from prismem_core.errors import ProgramError
from prismem_core.program.interface import (
    CLASS_NAMES,
    FIELD_TYPES,
    INSTRUCTION_NAMES,
    METHOD_PARAMETERS,
    FieldSpec,
    ProgramInterface,
    Schema,
    segmentation_fault,
)

_PLAIN = {str: "str", int: "int", float: "float", bool: "bool"}
_ASYNC_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


MAX_INSTRUCTION_CHARS = 20_000
"""Length of an instruction, which a program may compute from less source."""


def inspect_module(namespace: Mapping[str, Any]) -> ProgramInterface:
    """The interface of the module whose globals are `namespace`.

    Raises ProgramError with the first of `missing_definition`, `bad_instruction`, `bad_schema`, `bad_signature`.
    """
    for name in CLASS_NAMES:
        if not isinstance(namespace.get(name), type):
            found = "is no class" if name in namespace else "is missing"
            raise ProgramError("missing_definition", f"the class {name} {found}; define it at module level")
    for name in INSTRUCTION_NAMES:
        if name not in namespace:
            raise ProgramError("missing_definition", f"the constant {name} is missing; define it at module level")
    instructions = [_instruction(name, namespace[name]) for name in INSTRUCTION_NAMES]
    segmentation = namespace.get("Segmentation", "session")
    if fault := segmentation_fault(segmentation):
        raise ProgramError("bad_instruction", fault)
    unit = _schema("MemoryUnit", namespace["MemoryUnit"], namespace)
    query = _schema("Query", namespace["Query"], namespace)
    for name, parameters in METHOD_PARAMETERS.items():
        _method(namespace["Memory"], name, parameters)
    extraction, planning, answer = instructions
    return ProgramInterface(unit, query, extraction, planning, answer, str.__str__(segmentation))


def _instruction(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ProgramError("bad_instruction", f"{name} is of type {type(value).__name__}; it must be a str")
    text = str.__str__(value)
    if not text.strip():
        raise ProgramError("bad_instruction", f"{name} is blank; say what the model is to do")
    if len(text) > MAX_INSTRUCTION_CHARS:
        raise ProgramError(
            "bad_instruction",
            f"{name} has {len(text)} characters, all in every prompt; at most {MAX_INSTRUCTION_CHARS} are allowed",
        )
    return text


def _schema(name: str, cls: type, namespace: Mapping[str, Any]) -> Schema:
    if "__dataclass_fields__" not in cls.__dict__:
        raise ProgramError("bad_schema", f"{name} is not decorated with @dataclass itself; decorate it")
    fields = dataclasses.fields(cls)
    try:
        hints = typing.get_type_hints(cls, globalns=dict(namespace))
    except Exception as error:
        raise ProgramError("bad_schema", f"{name}: an annotation cannot be resolved: {_words(error)}") from None
    for pseudo in vars(cls)["__dataclass_fields__"].values():
        if isinstance(hints.get(pseudo.name), dataclasses.InitVar) or _is_init_var(pseudo.type):
            raise ProgramError("bad_schema", f"{name}.{pseudo.name} is an InitVar; make it a plain field")
    if not fields:
        raise ProgramError("bad_schema", f"{name} has no fields; give it at least one")
    return Schema(_field(name, item, hints.get(item.name, item.type)) for item in fields)


def _is_init_var(annotation: object) -> bool:
    return annotation is dataclasses.InitVar or isinstance(annotation, dataclasses.InitVar)


def _field(owner: str, item: dataclasses.Field[Any], annotation: object) -> FieldSpec:
    kind = annotation_type(annotation)
    if kind is None:
        raise ProgramError(
            "bad_schema",
            f"{owner}.{item.name}: the type {_type_words(annotation)} is not supported; "
            f"use {', '.join(FIELD_TYPES)} or Optional of one of them",
        )
    if not item.init:
        raise ProgramError("bad_schema", f"{owner}.{item.name} has init=False, so no model can fill it in")
    description = item.metadata.get("description", "")
    has_default, default, opaque = _default(item)
    return FieldSpec(
        name=item.name,
        type=kind[0],
        optional=kind[1],
        has_default=has_default,
        default=default,
        description=str.__str__(description) if isinstance(description, str) else "",
        opaque_default=opaque,
    )


def annotation_type(annotation: object) -> tuple[str, bool] | None:
    """(type, optional) of a resolved annotation, None if a model cannot fill it in."""
    if isinstance(annotation, type) and annotation in _PLAIN:
        return _PLAIN[annotation], False
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list and arguments in ((str,), ("str",)):
        return "list[str]", False
    if origin is typing.Union or origin is types.UnionType:
        kinds = [annotation_type(part) for part in arguments if part is not type(None)]
        if len(kinds) == 1 and kinds[0] is not None:
            return kinds[0][0], True
    return None


def _default(item: dataclasses.Field[Any]) -> tuple[bool, Any, bool]:
    """(has one, its JSON value, whether JSON cannot carry it)."""
    if item.default is not dataclasses.MISSING:
        value = item.default
    elif item.default_factory is not dataclasses.MISSING:
        try:
            value = item.default_factory()
        except Exception:
            # The factory is the program's business when it builds an object; a filled-in field never calls it.
            return True, None, True
    else:
        return False, None, False
    if _is_json(value):
        return True, json.loads(json.dumps(value)), False
    return True, None, True


def _is_json(value: object) -> bool:
    if type(value) is list:
        return all(type(part) is str for part in value)
    if type(value) is int:
        return value.bit_length() < 1024
    return value is None or type(value) in (str, bool) or (type(value) is float and math.isfinite(value))


def _method(memory: type, name: str, parameters: tuple[str, ...]) -> None:
    wanted = f"def {name}(self, {', '.join(parameters)})"
    found = inspect.getattr_static(memory, name, None)
    if not isinstance(found, types.FunctionType):
        missing = found is None or (name == "__init__" and found is object.__init__)
        words = "is missing" if missing else "is not a plain method"
        raise ProgramError("bad_signature", f"Memory.{name} {words}; define it as `{wanted}`")
    code = found.__code__
    line = code.co_firstlineno
    if code.co_flags & _ASYNC_FLAGS:
        raise ProgramError("bad_signature", f"Memory.{name} is async or a generator; define it as `{wanted}`", line)
    fits = (
        code.co_varnames[1 : code.co_argcount] == parameters
        and code.co_argcount == len(parameters) + 1
        and code.co_posonlyargcount <= 1  # the first parameter alone may be positional-only
        and not code.co_kwonlyargcount
        and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        and not found.__defaults__
        and not found.__kwdefaults__
    )
    if not fits:
        raise ProgramError("bad_signature", f"Memory.{name} takes other parameters than `{wanted}`", line)


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {str.__str__(str(error))[:200]}"
    except Exception:
        return type(error).__name__


def _type_words(annotation: object) -> str:
    """The type for a message; a hostile metaclass cannot make it fail."""
    try:
        if isinstance(annotation, type) and typing.get_origin(annotation) is None:
            return str.__str__(annotation.__name__)[:100]
        return str.__str__(repr(annotation))[:100]
    except Exception:
        return "of the annotation"
