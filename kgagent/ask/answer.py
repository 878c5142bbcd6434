"""`why`: a question answered from the graph alone, strongest finding first, what is unknown said as unknown."""

from __future__ import annotations

from kgagent.ask import following, source, timing
from kgagent.ask.compiled import compiles
from kgagent.ask.context import Context
from kgagent.ask.here import locate
from kgagent.ask.question import Question, read_question
from kgagent.ask.records import Answer, Here
from kgagent.ask.resolve import Subject, nearest, resolve
from kgagent.ask.trail import Disk, steps
from kgagent.ask.trials import configurations, counted_trials, trials
from kgagent.ask.wording import clipped, counted, listed
from kgagent.graph import Graph

SHOWN_WORDS = 120  # the record holds the whole question


def why(graph: Graph, question: str) -> Answer:
    """Findings for a question; no model is asked, and what the graph doesn't hold is in `unknown`."""
    asked = read_question(question)
    here = locate(graph, asked.chip)
    subject = resolve(graph, asked, here)
    if subject is None:
        return _nothing(graph, asked, here)
    against = resolve(graph, Question(asked.text, asked.against, (), (), ""), here) if asked.against else None
    context = _gather(graph, here, subject, against)
    _say_unmatched(context, asked)
    first = timing.lead(context)
    findings = [
        *first,
        *source.kernels(context),
        *source.mechanisms(context),
        *timing.experiments(context),
        *timing.other_compiles(context),
        *source.claims(context),
        *source.conditions(context),
        *source.tunables(context),
        *following.hypotheses(context),
        *following.untried(context),
    ]
    _say_untimed(context)
    return Answer(
        asked.text,
        subject.node,
        here,
        tuple(findings),
        tuple(dict.fromkeys(context.unknown)),
        () if findings else nearest(graph, asked.terms),
        subject.also,
        tuple(context.disk.notes),
    )


def _gather(graph: Graph, here: Here, subject: Subject, against: Subject | None) -> Context:
    """Compiles and experiments of the subject and of what it is set against."""
    own = configurations(graph, here.lane, subject.levers)
    compiled = compiles(graph, here.lane, own, [link.node.key for link in subject.kernels[:1]])
    lowered = [step.node.key for step in steps(graph, [compile_.node.key for compile_ in compiled], ("uses",), kind="configuration")]
    keys = list(dict.fromkeys([*own, *lowered]))
    mine = trials(graph, here.lane, keys)
    theirs = trials(graph, here.lane, configurations(graph, here.lane, against.levers)) if against else []
    return Context(graph, here, subject, against, compiled, mine, theirs, counted_trials(graph, here.lane, keys), Disk(graph))


def _nothing(graph: Graph, asked: Question, here: Here) -> Answer:
    """An answer that says what isn't known, and what the words may have meant."""
    words = " ".join([*asked.ids, *asked.terms])
    ingested = graph.value("SELECT 1 FROM source s JOIN node n ON n.key = s.key WHERE n.id <> 'src:concepts' LIMIT 1") is not None
    notes = () if ingested else ("no source was ingested yet: kgagent ingest pkg:jax/experimental/pallas",)
    unknown = (f'nothing in the graph is called "{clipped(words, SHOWN_WORDS)}"',)
    return Answer(asked.text, None, here, (), unknown, nearest(graph, [*asked.terms, *asked.ids]), (), notes)


def _say_unmatched(context: Context, asked: Question) -> None:
    """Words that name nothing, a second subject that doesn't exist, a chip nobody compiled for."""
    subject = context.subject
    if subject.unmatched:
        words = listed([f'"{word}"' for word in subject.unmatched])
        context.unknown.append(f"{words}: nothing in the graph is called so; answered for {subject.node.id}")
    if asked.against and context.against is None:
        context.unknown.append(f'"{" ".join(asked.against)}": nothing in the graph is called so; compared with nothing')
    if asked.chip and not context.here.topology.lower().startswith(asked.chip):
        context.unknown.append(f"{asked.chip}: nothing was compiled or timed for it in this lane")
    if subject.also:
        names = listed([node.id for node in subject.also[:4]])
        more = f" and {len(subject.also) - 4} more" if len(subject.also) > 4 else ""
        context.unknown.append(f'whether "{context.label}" means {subject.node.id}, as taken here, or {names}{more}')


def _say_untimed(context: Context) -> None:
    """What no experiment here tells."""
    if context.here.lane is None:
        context.unknown.append(f"any measurement: {context.here.chosen_by}")
        return
    if not any(trial.on_tpu for trial in context.trials):
        context.unknown.append(f"{context.label}'s time on a TPU: no experiment in lane {context.here.lane.name} ran on one")
    if not any(compile_.predicted for compile_ in context.compiles):
        context.unknown.append(f"what the TPU compiler makes of it: not preflighted (kgagent preflight {context.here.lane.name} --topology …)")
    if not context.trials:
        context.unknown.append(f"{context.label} in an experiment: none in lane {context.here.lane.name}")
    doubtful = [trial for trial in context.trials if trial.verdict == "inconclusive"]
    if doubtful:
        context.unknown.append(f"{counted(len(doubtful), 'experiment')} with it stayed inconclusive")
