"""What LangGraph and LangChain store of their own, and the types of Python that their serializer takes: data that does nothing.

Each stands under the name that the serializer writes, with the one form in which it writes it. A name is looked up here and never
imported. Of the framework's private names only `_DeltaSnapshot` is used, and only here.
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
"""A module, and the name of a class in it."""

ONE, EACH, NAMED, METHOD = (
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_METHOD_SINGLE_ARG,
)
OLD_MODEL, MODEL, ARRAY, SNAPSHOT = EXT_PYDANTIC_V1, EXT_PYDANTIC_V2, EXT_NUMPY_ARRAY, EXT_DELTA_SNAPSHOT
FORMS = frozenset({ONE, EACH, NAMED, METHOD, OLD_MODEL, MODEL})
"""How the serializer writes an object: what its class is called with."""

snapshot = _DeltaSnapshot


def _pattern(pattern: str | bytes, flags: int) -> re.Pattern[Any]:
    return re.compile(pattern, flags & ~re.DEBUG)  # which prints


def _send(node: str, arg: Any, timeout: Any = None) -> Send:
    return Send(node, arg) if timeout is None else Send(node, arg, timeout=timeout)


def _named(*classes: type) -> dict[Name, Any]:
    return {(cls.__module__, cls.__name__): cls for cls in classes}


_MODELS: tuple[type, ...] = (
    *(
        cls
        for name in messages.__all__
        if isinstance(cls := getattr(messages, name), type) and issubclass(cls, messages.BaseMessage)
    ),
    Document,
    *(AgentAction, AgentActionMessageLog, AgentFinish, AgentStep),
    *(ChatGeneration, ChatGenerationChunk, ChatResult, Generation, GenerationChunk, LLMResult),
    *(ChatPromptValue, ChatPromptValueConcrete, StringPromptValue),
)
_PATHS = [(module, name) for module in ("pathlib", "pathlib._local") for name in ("Path", "PosixPath", "WindowsPath")]
_BY_FORM: dict[int, dict[Name, Callable[..., Any]]] = {
    ONE: _named(
        *(UUID, Decimal, ZoneInfo, set, frozenset, deque, SecretStr, SecretBytes),
        *(IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network),
    ),
    EACH: {
        **_named(timedelta, date, timezone),
        **dict.fromkeys(_PATHS, Path),
        ("re", "compile"): _pattern,
        (Send.__module__, Send.__name__): _send,
    },
    NAMED: _named(
        time,
        *(CacheKey, Command, GraphOutput, Interrupt, Overwrite, PregelTask, StateSnapshot, StateUpdate, TimeoutPolicy),
        *(GetOp, PutOp, SearchOp, ListNamespacesOp, MatchCondition),
    ),
    METHOD: _named(datetime),
    OLD_MODEL: _named(Item, SearchItem),  # for its method `dict` taken for one
    MODEL: _named(*_MODELS),
}

OWN: Mapping[Name, tuple[int, Any]] = {name: (form, made) for form, some in _BY_FORM.items() for name, made in some.items()}
"""By the name that is stored: the form, and what makes one."""

BY_LC_ID: Mapping[tuple[str, ...], type] = {tuple(cls.lc_id()): cls for cls in _MODELS if issubclass(cls, Serializable)}
"""By the name that LangChain's own JSON has for it."""


def made(form: int, cls: Any, given: Any) -> Any:
    """An object of a class, as the serializer's form has it made; raises whatever the class does."""
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
    except Exception:  # of a model: what its checks would refuse today was stored, and is read
        return (cls.model_construct if form == MODEL else cls.construct)(**given)
