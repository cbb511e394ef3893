"""The types that StrictSerializer builds without being asked: data types of LangGraph, LangChain and Python.

Each is listed under the name that LangGraph's serializer writes, with the form in which it writes the object. Stored names are
looked up here and never imported. `_DeltaSnapshot` is the only private name of the framework that is used.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

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

Name = tuple[str, str]
"""(module, class name)."""

ONE, EACH, NAMED, METHOD = (
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_METHOD_SINGLE_ARG,
)
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
