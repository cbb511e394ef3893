"""StrictSerializer: stored data never decides what is imported or called."""

import importlib
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langchain_core import messages
from langchain_core.agents import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation, GenerationChunk, LLMResult
from langchain_core.prompt_values import ChatPromptValue, ChatPromptValueConcrete, StringPromptValue
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_DELTA_SNAPSHOT,
    EXT_METHOD_SINGLE_ARG,
    EXT_NUMPY_ARRAY,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.store.base import GetOp, Item, ListNamespacesOp, MatchCondition, PutOp, SearchItem, SearchOp
from langgraph.types import (
    CacheKey,
    Command,
    GraphOutput,
    Interrupt,
    Overwrite,
    PregelTask,
    Send,
    StateSnapshot,
    StateUpdate,
    TimeoutPolicy,
)
from pydantic import SecretBytes, SecretStr

from persist.errors import StoreCorrupt, shown
from persist.integrations.store_bridge import kind_of

# Each is listed under the name that LangGraph's serializer writes, with its form; stored names are looked up here and never
# imported. `_DeltaSnapshot` is the only private name of the framework that is used.

Name = tuple[str, str]
"""(module, class name)."""
ONE, EACH, NAMED, METHOD = (EXT_CONSTRUCTOR_SINGLE_ARG, EXT_CONSTRUCTOR_POS_ARGS, EXT_CONSTRUCTOR_KW_ARGS, EXT_METHOD_SINGLE_ARG)
OLD_MODEL, MODEL, ARRAY, SNAPSHOT = EXT_PYDANTIC_V1, EXT_PYDANTIC_V2, EXT_NUMPY_ARRAY, EXT_DELTA_SNAPSHOT
FORMS = frozenset({ONE, EACH, NAMED, METHOD, OLD_MODEL, MODEL})
"""The forms in which the serializer writes an object: how its class is called to build it."""
snapshot = _DeltaSnapshot


def _pattern(pattern: str | bytes, flags: int) -> re.Pattern[Any]:
    return re.compile(pattern, flags & ~re.DEBUG)  # DEBUG would print


def _send(node: str, arg: Any, timeout: Any = None) -> Send:
    return Send(node, arg) if timeout is None else Send(node, arg, timeout=timeout)


def _by_name(*classes: type) -> dict[Name, Any]:
    return {(cls.__module__, cls.__name__): cls for cls in classes}


MESSAGES: tuple[type[messages.BaseMessage], ...] = tuple(
    cls
    for name in sorted(messages.__all__)
    if isinstance(cls := getattr(messages, name), type) and issubclass(cls, messages.BaseMessage)
)
"""LangChain's classes of messages."""
_MODELS: tuple[type, ...] = (
    *MESSAGES,
    Document,
    *(AgentAction, AgentActionMessageLog, AgentFinish, AgentStep),
    *(ChatGeneration, ChatGenerationChunk, ChatResult, Generation, GenerationChunk, LLMResult),
    *(ChatPromptValue, ChatPromptValueConcrete, StringPromptValue),
)
_PATHS = [(module, name) for module in ("pathlib", "pathlib._local") for name in ("Path", "PosixPath", "WindowsPath")]
_BY_FORM: dict[int, dict[Name, Callable[..., Any]]] = {
    ONE: _by_name(
        *(UUID, Decimal, ZoneInfo, set, frozenset, deque, SecretStr, SecretBytes),
        *(IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network),
    ),
    EACH: {
        **_by_name(timedelta, date, timezone),
        **dict.fromkeys(_PATHS, Path),
        ("re", "compile"): _pattern,
        (Send.__module__, Send.__name__): _send,
    },
    NAMED: _by_name(
        time,
        *(CacheKey, Command, GraphOutput, Interrupt, Overwrite, PregelTask, StateSnapshot, StateUpdate, TimeoutPolicy),
        *(GetOp, PutOp, SearchOp, ListNamespacesOp, MatchCondition),
    ),
    METHOD: _by_name(datetime),
    OLD_MODEL: _by_name(Item, SearchItem),  # written like a pydantic v1 model because it has a method `dict`
    MODEL: _by_name(*_MODELS),
}
OWN: Mapping[Name, tuple[int, Any]] = {name: (form, build) for form, types in _BY_FORM.items() for name, build in types.items()}
"""(form, callable that builds the object) by the stored name."""
BY_LC_ID: Mapping[tuple[str, ...], type] = {tuple(cls.lc_id()): cls for cls in _MODELS if issubclass(cls, Serializable)}
"""Classes by their id in LangChain's own JSON."""


def construct(form: int, cls: Any, given: Any) -> Any:
    """Build an object from its serialized form. Raises what the class raises."""
    if form == ONE:
        return cls(given)
    if form == EACH:
        return cls(*given)
    if form == NAMED:
        return cls(**given)
    if form == METHOD:
        return cls.fromisoformat(given)
    try:
        return cls(**given)
    except Exception:  # a model: data stored under earlier rules is built without validation
        return (cls.model_construct if form == MODEL else cls.construct)(**given)


Allowed = type | str | tuple[str, ...]
"""A class, or its name: "package.module.Class" or ("package.module", "Class")."""
_log = logging.getLogger("persist")
_MAX_WARNINGS = 1000  # class names come from the database, so their number has to be limited
_PATH = "a value of a checkpoint"


class StrictSerializer(JsonPlusSerializer):
    """LangGraph's serializer, except that reading builds only LangGraph's and LangChain's own types and those in `allow`.

    Objects of other classes are returned as plain data, with one warning of the logger `persist` for each class. Raises
    StoreCorrupt for a pickle, and for bytes that are not a value of LangGraph's serializer.
    """

    def __init__(self, allow: Iterable[Allowed] = ()) -> None:
        super().__init__(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)
        if isinstance(allow, str | type):
            raise TypeError(f"allow is {shown(allow)}; expected a list of classes or of their names.")
        self._allowed: dict[Name, type | None] = {}
        for key, cls in map(_entry, allow):
            if (other := self._allowed.setdefault(key, cls)) is not cls and None not in (other, cls):
                raise TypeError(f"allow lists two classes that are both stored as {shown('.'.join(key))}; rename one of them.")
            self._allowed[key] = other or cls
        self._warned: set[str] = set()
        self.plain_reads = 0
        """How many objects were read as plain data, because their classes were not built."""

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Allowed]) -> "StrictSerializer":
        """A serializer that allows these classes too."""
        wider = StrictSerializer(extra_allowlist)
        wider._allowed = {**wider._allowed, **self._allowed}
        return self if wider._allowed.keys() == self._allowed.keys() else wider

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Deserialize a value. StoreCorrupt: a pickle, an unknown kind or invalid bytes."""
        kind, packed = data
        if kind in ("msgpack", "json"):
            try:
                return self._unpacked(packed) if kind == "msgpack" else json.loads(packed, object_hook=self._of_json)
            except (ValueError, RecursionError) as error:
                found = kind_of(error)
            raise StoreCorrupt(_PATH, f"it is nothing that LangGraph's serializer writes: {found}.")
        if kind == "null":
            return None
        if kind == "bytes":
            return packed
        if kind == "bytearray":
            return bytearray(packed)
        reason = (
            "a pickle runs what it says, so none is read" if kind == "pickle" else "that is no word of LangGraph's serializer"
        )
        raise StoreCorrupt(_PATH, f"it is stored as {shown(kind)}: {reason}. Pass the serializer that wrote it as serde=.")

    def _unpacked(self, packed: bytes) -> Any:
        return ormsgpack.unpackb(packed, ext_hook=self._of_extension, option=ormsgpack.OPT_NON_STR_KEYS)

    def _of_extension(self, form: int, packed: bytes) -> Any:
        """Build an object from a MessagePack extension; objects inside it are read by the same rules."""
        inside = self._unpacked(packed)
        if form == SNAPSHOT:
            return snapshot(inside)
        if form == ARRAY:
            return self._array(inside)
        if form not in FORMS:
            raise ValueError("an extension of MessagePack that is none of LangGraph's")
        module, name, given, *method = inside
        if form == METHOD and method != ["fromisoformat"]:
            return self._plain((f"{module}", f"{name}.{method[0]}"), given)
        return self._object(form, module, name, given, given)

    def _object(self, form: int | None, module: str, name: str, given: Any, plain: Any) -> Any:
        """The object built from `given`; `plain` if its class is not allowed or fails. Form None: `given` is LangChain's JSON."""
        key = (module, name)
        own_form, cls = OWN.get(key) or (form, self._find(key))
        if cls is None or form not in (None, own_form):
            return self._plain(key, plain)
        try:
            if form is None:
                form = own_form if own_form is not None else NAMED if given.get("kwargs") else EACH
                given = _arguments(form, given)
            return construct(form, cls, given)
        except Exception as error:
            return self._plain(key, plain, error)

    def _of_json(self, value: dict[str, Any]) -> Any:
        """Build an object from JSON of LangChain or older LangGraphs. A secret stays JSON with its name."""
        version, place = value.get("lc"), value.get("id")
        if version not in (1, 2) or value.get("type") != "constructor" or not isinstance(place, list):
            return value
        names = tuple(f"{part}" for part in place)
        if version == 1 and (cls := BY_LC_ID.get(names)) is not None:
            names = (cls.__module__, cls.__name__)
        elif version == 1:
            return self._plain((".".join(names[:-1]), "".join(names[-1:])), value)
        return self._object(None, ".".join(names[:-1]), "".join(names[-1:]), value, value)

    def _find(self, key: Name) -> type | None:
        if key not in self._allowed:
            return None
        if (cls := self._allowed[key]) is None:
            module, name = key
            try:
                found = getattr(importlib.import_module(module), name)
            except (ImportError, AttributeError):
                return None
            if not isinstance(found, type) or (found.__module__, found.__name__) != key:
                return None  # a function, or a class that the module only imports
            cls = self._allowed[key] = found
        return cls

    def _array(self, inside: Any) -> Any:
        try:
            import numpy as np

            dtype, shape, order, buffer = inside
            return np.frombuffer(buffer, dtype=np.dtype(f"{dtype}")).reshape(shape, order=order)
        except Exception as error:
            return self._plain(("numpy", "ndarray"), inside, error)

    def _plain(self, key: Name, given: Any, error: Exception | None = None) -> Any:
        """`given`, after a warning that its class was not built."""
        self.plain_reads += 1
        called = shown(".".join(key))
        if called not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned.add(called)
            if error is None:
                _log.warning(
                    "A value stored as %s was read as plain data: only LangGraph's and LangChain's own types are built, and what "
                    "is allowed. If it is a class of yours, name it: PersistSaver(store, allow=[%s]).",
                    called,
                    called,
                )
            else:
                _log.warning("A value stored as %s was read as plain data: its class fails (%s).", called, type(error).__name__)
        return given


def _entry(allowed: object) -> tuple[Name, type | None]:
    if isinstance(allowed, type):
        return (allowed.__module__, allowed.__name__), allowed
    names = allowed.split(".") if isinstance(allowed, str) else allowed
    if not isinstance(names, list | tuple) or len(names) < 2 or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"allow names {shown(allowed)}; expected a class, 'module.Class' or ('module', 'Class').")
    return (".".join(names[:-1]), names[-1]), None


def _arguments(form: int, value: dict[str, Any]) -> Any:
    args, kwargs = value.get("args") or [], value.get("kwargs") or {}
    if form in (NAMED, MODEL):
        return kwargs
    return args[0] if form in (ONE, METHOD) and len(args) == 1 else args
