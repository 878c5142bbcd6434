"""Names inside one file: what a dotted expression means where it stands, by Python's own scoping.

A lookup walks functions outward and skips enclosing class bodies, as Python does; what it finds is an import, a definition,
a parameter or a variable, and the last two are followed to what was annotated or assigned.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import Any

from kgagent.ingest.shapes import CALLED, CLASS, FUNCTION, SUPER, Target, weakest

BUILTINS = frozenset(dir(builtins))
MAX_STEPS = 8  # of a chain; longer ones are builder calls nobody's annotations reach
MAX_CANDIDATES = 8  # of a name; more is no answer
PARTIAL = frozenset({"functools.partial", "jax.tree_util.Partial"})
# Functions that return their first argument, wrapped: the name on the left is still that function to a reader.
TRANSFORMS = frozenset(
    {
        "jax.jit", "jax.vmap", "jax.pmap", "jax.grad", "jax.value_and_grad", "jax.checkpoint", "jax.remat", "jax.custom_vjp", "jax.custom_jvp",
        "jax.named_call", "jax.shard_map", "jax.experimental.shard_map.shard_map", "jax.experimental.pjit.pjit", "jax.linearize", "jax.vjp",
        "functools.wraps", "functools.lru_cache", "functools.cache", "jax.custom_batching.custom_vmap", "jax.ad_checkpoint.checkpoint",
        "jax.named_scope", "jax.util.wraps", "jax._src.api.jit", "jax._src.custom_derivatives.custom_vjp", "jax._src.custom_derivatives.custom_jvp",
    }
)  # fmt: skip


@dataclass(slots=True)
class Value:
    """An assigned or passed expression, as far as names can be read off it."""

    kind: str  # name, call, choice, lambda, list, opaque
    text: str = ""  # the dotted chain of a name or of a call's callee
    parts: tuple[Value, ...] = ()  # first argument of a call, branches of a choice, items of a list, callee of a lambda's body


OPAQUE = Value("opaque")


@dataclass(slots=True)
class Binding:
    """One thing a name is bound to in a scope."""

    kind: str  # import, def, param, value
    target: str = ""  # import: dotted; def: qualified name below the module
    how: str = "exact"
    value: Value | None = None  # value: what was assigned; param: its default
    annotation: Value | None = None
    scope: Scope | None = None  # where `value` and `annotation` are to be read
    node: Any = None  # the assigned expression's syntax node, while the file is being read


@dataclass(slots=True)
class Scope:
    """A module, class, function or lambda body."""

    kind: str
    qual: str
    symbol: int
    parent: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    self_name: str = ""
    uses: dict[str, int] = field(default_factory=dict)  # chain read here → first line
    memo: dict[str, tuple[Target, ...]] = field(default_factory=dict)

    def bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def owner_class(self) -> Scope | None:
        """The class whose method this is (or is nested in)."""
        scope: Scope | None = self
        while scope is not None and scope.kind != CLASS:
            scope = scope.parent
        return scope


def steps_of(chain: str) -> list[str]:
    """`X().m` as [X, (), m]."""
    return chain.replace("()", ".()").split(".")


class Names:
    """Resolves dotted chains of one module to absolute targets."""

    def __init__(self, module: str, *, has_stars: bool = False) -> None:
        self.module = module
        self.has_stars = has_stars  # `from m import *`: an unbound name may be one of theirs

    def absolute(self, qual: str) -> str:
        return f"{self.module}.{qual}" if qual else self.module

    def resolve(self, scope: Scope, chain: str) -> tuple[Target, ...]:
        """What a chain means in a scope: one target, several candidates, or nothing."""
        found = scope.memo.get(chain)
        if found is None:
            scope.memo[chain] = ()  # a chain that rests on itself, `x = x.next`, rests on nothing
            found = scope.memo[chain] = self._resolve(scope, chain)
        return found

    def static(self, scope: Scope, chain: str) -> tuple[Target, ...]:
        """Like `resolve`, but nothing for variables and parameters: what was assigned to them was read where it was assigned.

        Members of a variable that renames something, such as `module = sm90 if … else sm80`, are read here and nowhere else.
        """
        head, dot, _ = chain.partition(".")
        where, own = self.holder(scope, head)
        if where is None:
            return self.resolve(scope, chain) if self.has_stars else ()
        if not own and where.names[head][0].kind not in ("import", "def"):
            renames = dot and all(b.value is not None and b.value.kind in ("name", "choice") for b in where.names[head])
            if not renames:
                return ()
        return self.resolve(scope, chain)

    def holder(self, scope: Scope, head: str) -> tuple[Scope | None, bool]:
        """The scope a plain name belongs to, and whether it is the method's own `self`."""
        looked: Scope | None = scope
        while looked is not None:
            if looked.self_name == head:
                return looked, True
            if head in looked.names and (looked.kind != CLASS or looked is scope):
                return looked, False
            looked = looked.parent
        return None, False

    def _resolve(self, scope: Scope, chain: str) -> tuple[Target, ...]:
        head, *rest = steps_of(chain)
        if len(rest) > MAX_STEPS:
            return ()
        if head == "super":
            owner = scope.owner_class()
            if owner is None or not rest or rest[0] != CALLED:
                return ()
            return (Target(".".join((self.absolute(owner.qual), SUPER, *rest[1:])), "inferred"),)
        where, own = self.holder(scope, head)
        if where is None:
            if self.has_stars and head not in BUILTINS:
                return (Target(".".join((self.absolute(head), *rest)), "re-export"),)
            return ()
        if own:
            owner = where.owner_class()
            return (Target(".".join((self.absolute(owner.qual), *rest)), "inferred"),) if owner is not None else ()
        found = self.head_targets(where, head, bool(rest))
        return tuple(Target(".".join((name, *rest)), how) for name, how in found) if rest else found

    def head_targets(self, scope: Scope, head: str, wants_member: bool) -> tuple[Target, ...]:
        """What a name bound in this very scope stands for; for a member lookup, a parameter stands for an instance of its annotation."""
        key = f"{head}." if wants_member else head + " "
        known = scope.memo.get(key)
        if known is not None:
            return known
        scope.memo[key] = ()
        found: dict[str, str] = {}
        for binding in scope.names[head]:
            for target in self.follow(scope, binding, wants_member):
                found.setdefault(target.name, target.how)
        if len(found) > MAX_CANDIDATES:
            found = {}
        several = len(found) > 1
        answer = scope.memo[key] = tuple(Target(name, weakest(how, "candidate") if several else how) for name, how in found.items())
        return answer

    def follow(self, scope: Scope, binding: Binding, wants_member: bool) -> tuple[Target, ...]:
        """What one binding stands for."""
        where = binding.scope or scope
        if binding.kind == "import":
            return (Target(binding.target, binding.how),)
        if binding.kind == "def":
            if binding.value is not None and binding.value.kind == "name":  # a module-level alias, `partial = functools.partial`
                followed = self.value_targets(binding.value, where)
                if followed:
                    return tuple(Target(name, weakest(how, "alias")) for name, how in followed)
            return (Target(self.absolute(binding.target), "exact"),)
        if binding.kind == "param" and wants_member and binding.annotation is not None:
            typed = tuple(Target(f"{name}.{CALLED}", "inferred") for name, _ in self.value_targets(binding.annotation, where))
            if typed:
                return typed
        if binding.value is None:
            return ()
        return tuple(Target(name, weakest(how, "inferred")) for name, how in self.value_targets(binding.value, where))

    def value_targets(self, value: Value, scope: Scope) -> tuple[Target, ...]:
        """The functions or classes a value may stand for."""
        if value.kind == "name":
            return self.resolve(scope, value.text)
        if value.kind == "call":
            callees = self.resolve(scope, value.text)
            if value.parts and any(name in PARTIAL or name in TRANSFORMS for name, _ in callees):
                return tuple(Target(name, weakest(how, "inferred")) for name, how in self.value_targets(value.parts[0], scope))
            return tuple(Target(f"{name}.{CALLED}", weakest(how, "inferred")) for name, how in callees)
        if value.kind in ("choice", "list"):
            found: dict[str, str] = {}
            for part in value.parts:
                for name, how in self.value_targets(part, scope):
                    found.setdefault(name, how)
            least = "candidate" if len(found) > 1 else "inferred"
            return tuple(Target(name, weakest(how, least)) for name, how in found.items())
        return ()

    def is_bound(self, scope: Scope, head: str) -> Scope | None:
        """The scope that binds a plain name, as Python would look it up."""
        where, own = self.holder(scope, head)
        return None if own else where

    def is_given(self, scope: Scope, value: Value) -> bool:
        """Whether a value is a parameter or something of one: its default or annotation is not what callers get back."""
        if value.kind != "name":
            return False
        where, own = self.holder(scope, value.text.partition(".")[0])
        return own or (where is not None and where.names[value.text.partition(".")[0]][0].kind == "param")

    def parameter_of(self, scope: Scope, value: Value) -> tuple[str, str]:
        """(function qual, parameter) where a value is, or wraps, a parameter of an enclosing function; ('', '') otherwise."""
        if value.kind == "call" and value.parts and any(t.name in PARTIAL or t.name in TRANSFORMS for t in self.resolve(scope, value.text)):
            return self.parameter_of(scope, value.parts[0])
        if value.kind == "lambda" and value.parts:
            return self.parameter_of(scope, value.parts[0])
        if value.kind != "name" or "." in value.text:
            return "", ""
        where = self.is_bound(scope, value.text)
        if where is None:
            return "", ""
        first = where.names[value.text][0]
        if first.kind == "param" and where.kind == FUNCTION:
            return where.qual, value.text
        return "", ""
