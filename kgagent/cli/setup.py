"""Commands about the machine and the workspace: init, doctor, completion."""

from __future__ import annotations

from pathlib import Path

import click

from kgagent.cli.output import State, emit, json_option, narrate
from kgagent.errors import UsageError


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--lane", default="attention", show_default=True, help="The lane that “here” means in questions.")
@json_option
@click.pass_obj
def init(state: State, folder: Path | None, lane: str, as_json: bool) -> None:
    """Make a workspace: folders, lanes, concept pages. Files that exist are left as they are."""
    from kgagent.setup import initialise

    if folder is not None and state.explicit is not None:
        raise UsageError("say the folder once", hint="kgagent -w DIR init, or kgagent init DIR")
    report = initialise(folder or state.explicit or Path.cwd(), lane=lane)
    emit(
        report,
        as_json,
        lambda r: f"workspace {r.root}: {r.concepts} concept pages, lanes {', '.join(r.lanes)}" + (f"; kept {r.kept} files as they were" if r.kept else ""),
    )
    if not as_json:
        narrate("next: kgagent ingest pkg:jax/experimental/pallas, then kgagent plan " + lane)


@click.command()
@json_option
@click.pass_obj
def doctor(state: State, as_json: bool) -> None:
    """Say what this machine can do (jax, TPU, libtpu, xprof, LLM keys) and how to get the rest."""
    from kgagent.doctor import examine

    report = examine(state.explicit)
    emit(
        report,
        as_json,
        lambda r: "\n".join(f"{'✓' if c.ok else '·'} {c.name:<12} {c.found}" + (f"\n    to get it: {c.get}" if c.get else "") for c in r.checks),
    )


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script: eval "$(kgagent completion bash)"."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}")
    root = ctx.find_root()
    click.echo(found(root.command, {}, "kgagent", "_KGAGENT_COMPLETE").source())
