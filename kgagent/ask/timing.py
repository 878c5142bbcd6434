"""Findings about time: whether a TPU ever timed the subject, what the compiler says where none did, what experiments measured."""

from __future__ import annotations

from kgagent.ask.compiled import Compile, against_whom, changes, lines, memory_change, square, still_there, summary
from kgagent.ask.context import Context
from kgagent.ask.question import tokens
from kgagent.ask.records import Finding
from kgagent.ask.resolve import lever_of, reach
from kgagent.ask.trail import Ground, steps
from kgagent.ask.trials import Paired, Trial, matches
from kgagent.ask.wording import counted, listed, settings, times

SHOWN_TRIALS = 4
SHOWN_POINTS = 3
CITED_OPS = 12


def lead(context: Context) -> list[Finding]:
    """The first finding: TPU measurements where there are any, else that there are none and what is known instead."""
    timed = [trial for trial in context.trials if trial.on_tpu]
    if timed:
        return [finding for trial in timed[:SHOWN_TRIALS] for finding in measured(context, trial)]
    predicted = _lead_compile(context)
    if predicted is not None:
        return _predicted(context, predicted)
    ground = context.ground()
    cpu = [trial for trial in context.trials if trial.timed]
    if cpu:
        for trial in cpu:
            ground.rest(*trial.edges[:2])
        devices = listed(sorted({trial.device for trial in cpu}))
        text = f"{context.label} was not timed on a TPU here and not compiled for one: {counted(len(cpu), 'experiment')} timed it on {devices} only."
        return ground.about(context.subject.node).finding("not timed", text, "measured on cpu")
    return _untouched(context) if context.here.lane is not None else []


def _untouched(context: Context) -> list[Finding]:
    """Nothing ran it and nothing compiled it: the levers that could, or the kernel that the lane's levers of that name reach instead."""
    lane, subject = context.here.lane, context.subject
    assert lane is not None
    placed = [step.edge for step in steps(context.graph, [lever.node.key for lever in subject.levers], ("within",)) if step.node.key == lane.key]
    ground = context.ground().about(subject.node)
    head = f"{context.label} was not timed here, on a TPU or otherwise, and not compiled"
    if placed:
        text = f"{head}; lane {lane.name} has {counted(len(placed), 'lever')} for it that no experiment pulled."
        return ground.rest(*placed).finding("not timed", text, "open")
    own = steps(context.graph, [lane.key], ("within",), back=True, kind="lever")
    words = set(tokens(context.label))
    for step in own:
        setting = lever_of(step.node)
        if setting is not None and words & set(tokens(setting[2])):
            for key, path in reach(context.graph, [step.node.key]).items():
                other = context.graph.node_by_key(key)
                text = f"{head}; the lane's {setting[1]}={setting[2]} reaches {other.id} instead."
                return ground.rest(step.edge, *path).about(subject.node, other).finding("not timed", text, "open")
    return []


def _lead_compile(context: Context) -> Compile | None:
    """The newest ahead-of-time compile for the topology of "here", else for any; one with a reference beside it first."""
    predicted = [compile_ for compile_ in context.compiles if compile_.predicted]
    return next((compile_ for compile_ in predicted if compile_.topology == context.here.topology), predicted[0] if predicted else None)


def _predicted(context: Context, compile_: Compile) -> list[Finding]:
    """What the compiler says of the subject for a topology no chip of which timed it."""
    ground = context.ground().about(context.subject.node, compile_.node).rest(*compile_.path)
    said = [str(compile_.node.data["op_point"])] if compile_.node.data.get("op_point") else []
    said += [settings(compile_.knobs)] if compile_.knobs else []
    head = f"{context.label} was not timed on a TPU here; this is the compiler's answer for {compile_.topology} ({', '.join(['predicted', *said])})"
    if compile_.blocked:
        path, _, line = str(compile_.node.data.get("error_line") or "").rpartition(":")
        ground.cite(path, int(line) if line.isdigit() else None, None, compile_.node.id, "where it is refused")
        return ground.finding("predicted", f"{head}: it does not compile: {' '.join(compile_.blocked.split())}", "predicted")
    if compile_.against is None:
        others = steps(context.graph, [compile_.node.key], ("differs_from",), back=True)
        if others:
            text = f"{head}: it compiles, and it is what {counted(len(others), 'other compile')} of the lane are compared with."
            return ground.rest(*(step.edge for step in others)).finding("predicted", text, "predicted")
        context.unknown.append(f"what changed in the HLO for {compile_.topology}: its compile was not set beside the reference's")
        return ground.finding("predicted", f"{head}: it compiles.", "predicted")
    return ground.finding("predicted", f"{head}: {_difference(context, compile_, ground)}.", "predicted")


def _difference(context: Context, compile_: Compile, ground: Ground) -> str:
    """What went and came between two compiles, resting on the edges that say so."""
    graph = context.graph
    assert compile_.against is not None
    ground.rest(compile_.against.edge)
    went, came = changes(graph, compile_, "removes"), changes(graph, compile_, "adds")
    matrices, length, pattern = square(graph, compile_, went)
    parts = []
    if matrices:
        count = sum(len(change.steps) for change in matrices)
        left = still_there(graph, compile_, length)
        rest = "none is left" if not left else f"{left} remain"
        parts.append(f"{counted(count, 'instruction')} with a {pattern} buffer went ({summary(matrices, 'largest').removeprefix('largest: ')}), {rest}")
    elif went:
        parts.append(summary(went, "went"))
    arrived = [change for change in came if change.kernel_name] or came
    if arrived:
        parts.append(summary(arrived, "came"))
    if change := memory_change(compile_):
        parts.append(change)
    fired = compile_.node.data.get("mechanism")
    if isinstance(fired, dict) and fired.get("result"):
        parts.append(f"mechanism gate {str(fired['result']).replace('_', ' ')}")
    shown = [step for change in (matrices or went)[:4] for step in change.steps][:CITED_OPS]
    ground.rest(*(step.edge for change in (matrices or went) for step in change.steps), *(step.edge for change in arrived for step in change.steps))
    with_line = lines(graph, shown, ground, context.disk)
    if shown and with_line < len(shown):
        context.unknown.append(f"the source line of {len(shown) - with_line} of the {len(shown)} instructions shown as gone for {_target(compile_)}")
    lines(graph, [step for change in arrived[:4] for step in change.steps][:4], ground, context.disk)
    if compile_.predicted and any(change.kernel_name for change in came):
        context.unknown.append("the kernel's own time: a compile doesn't tell, and the compiler's cost model doesn't look inside a custom call")
    return "; ".join(parts) if parts else f"the optimised HLO has the same instructions as {against_whom(graph, compile_)}"


def _target(compile_: Compile) -> str:
    return f"{compile_.topology} (predicted)" if compile_.predicted else "the CPU"


def other_compiles(context: Context) -> list[Finding]:
    """The CPU's compile, and ahead-of-time compiles for topologies other than the leading one's."""
    found: list[Finding] = []
    leading = _lead_compile(context) if not any(trial.on_tpu for trial in context.trials) else None
    seen = {leading.topology} if leading is not None else set()
    for compile_ in context.compiles:
        target = compile_.topology if compile_.predicted else "cpu"
        if target in seen or compile_.against is None:
            continue
        seen.add(target)
        ground = context.ground().about(compile_.node).rest(*compile_.path)
        mode = ", Pallas in interpret mode" if compile_.interpreted else ""
        knobs = f", {settings(compile_.knobs)}" if compile_.knobs else ""
        head = f"compiled for {_target(compile_) if compile_.predicted else 'cpu'}{knobs}{mode}, against {against_whom(context.graph, compile_)}"
        text = f"{head}: {_difference(context, compile_, ground)}."
        found.extend(ground.finding("compiled", text, "predicted" if compile_.predicted else "measured on cpu"))
    return found


def experiments(context: Context) -> list[Finding]:
    """What was measured off the TPU, the compared-with thing's own experiments after it."""
    found: list[Finding] = []
    rest = [trial for trial in context.trials if not trial.on_tpu]
    if context.against is not None:
        others = context.against.levers
        rest.sort(key=lambda trial: not any(matches(trial.baseline_knobs, lever) for lever in others))
    for trial in rest[:SHOWN_TRIALS]:
        found.extend(measured(context, trial))
    if len(rest) > SHOWN_TRIALS:
        left = context.trial_count - min(SHOWN_TRIALS, len(context.trials) - len(rest)) - SHOWN_TRIALS
        context.note(f"{counted(left, 'further experiment')} with {context.label} not shown; the next is {rest[SHOWN_TRIALS].node.id}")
    found.extend(_versus(context))
    return found


def measured(context: Context, trial: Trial) -> list[Finding]:
    """One experiment: scope, speedup with its interval, verdict; what stopped it where something did."""
    interpreted = context.interpreted(trial)
    ground = context.ground().about(trial.node).rest(*trial.edges, *interpreted, *trial.memory_edges).cite_node(trial.node)
    device = "tpu" if trial.on_tpu else trial.device or trial.chip
    where = f"{trial.chip}{', ' + trial.topology if trial.topology not in ('', trial.chip) else ''}, jax {trial.jax}"
    mode = ", Pallas in interpret mode: the interpreter was timed, not the kernel" if interpreted else ""
    head = f"{trial.node.id} [{device}] {settings(trial.knobs)} at {trial.scope.id} ({where}{mode})"
    verdict = f"; {trial.verdict}" if trial.verdict else "; no verdict"
    if trial.quarantined:
        verdict += f", quarantined: {trial.quarantined}"
    if not trial.paired and trial.reference:
        text = f"{head}: it is the lane's reference, what everything is measured against{': ' + trial.alone if trial.alone else ''}."
    elif not trial.paired:
        detail = " ".join(trial.detail.split())
        text = f"{head}: {trial.outcome.replace('_', ' ')}{', ' + detail if detail else ''}{verdict}; no time was compared."
    else:
        base = f" over {trial.baseline.id}" if trial.baseline else " over its baseline"
        points = "; ".join(_point(pair, base) for pair in trial.paired[:SHOWN_POINTS])
        more = len(trial.paired) - SHOWN_POINTS
        others = f"; {counted(more, 'more operating point')}" if more > 0 else ""
        room = f"; {trial.memory}" if trial.memory else ""
        text = f"{head}: {points}{others}{room}{verdict}."
        if trial.sound and all(pair.decided == "slower" for pair in trial.paired):
            text += f" It was slower, not faster, than {trial.baseline.id if trial.baseline else 'its baseline'}."
    strength = f"measured on {'cpu' if 'cpu' in device.lower() else device}" if trial.timed else "stated"
    return ground.finding("experiment", text, strength)


def _point(pair: Paired, base: str) -> str:
    return (
        f"{times(pair.speedup)}{base} (interval {times(pair.ci_low)} to {times(pair.ci_high)}, {pair.pairs} pairs, "
        f"noise floor {pair.noise_floor_frac * 100:.2g}%), {times(pair.over_reference)} over the reference, {pair.metric} at {pair.op_point}"
    )


def _versus(context: Context) -> list[Finding]:
    """Both sides of "X faster than Y" in one scope; across scopes the mismatch is the answer."""
    if context.against is None:
        return []
    mine = [trial for trial in context.trials if trial.sound and trial.paired]
    theirs = [trial for trial in context.against_trials if trial.sound and trial.paired]
    other = context.against.label
    if any(matches(trial.baseline_knobs, lever) for trial in mine for lever in context.against.levers):
        return []  # timed as a pair, which the experiment's own finding gives
    if mine and any(trial.reference for trial in context.against_trials):
        return []  # each of its experiments gives its speedup over that reference
    if not mine or not theirs:
        context.unknown.append(f"{context.label} against {other}: {context.label if not mine else other} has no sound measurement in this lane")
        return []
    pairs = [(a, b) for a in mine for b in theirs if a.scope.key == b.scope.key and a.paired[0].op_point == b.paired[0].op_point]
    if not pairs:
        context.unknown.append(
            f"{context.label} against {other}: measured at different scopes ({mine[0].scope.id}, {theirs[0].scope.id}); their numbers don't compare"
        )
        return []
    a, b = pairs[0]
    ratio = a.paired[0].over_reference / b.paired[0].over_reference
    text = (
        f"{context.label} {times(a.paired[0].over_reference)}, {other} {times(b.paired[0].over_reference)} over the same reference at {a.scope.id}, "
        f"{a.paired[0].op_point} [{'tpu' if a.on_tpu else a.device}]: {times(ratio)} between them, not timed as a pair."
    )
    ground = context.ground().about(a.node, b.node).rest(*a.edges, *b.edges)
    return ground.finding("comparison", text, "measured on tpu" if a.on_tpu else "measured on cpu")
