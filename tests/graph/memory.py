"""A small research memory, written row by row through the refusing tables, for tests that then break one rule each."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kgagent.graph import Graph, NewNode
from kgagent.objects import canonical_json, sha256_hex

NOW = "2026-01-01T00:00:00Z"
GATES = ("mechanism", "parity")


@dataclass
class Memory:
    """Builds rows with sound defaults; every method takes what a test wants different."""

    graph: Graph

    def node(self, id_: str, kind: str) -> int:
        self.graph.put_nodes([NewNode(id_, kind, id_.rsplit("/", 1)[-1], "test")])
        return self.graph.key(id_)

    def lane(self, name: str = "attention", kind: str = "kernel", reach: int = 1) -> int:
        key = self.node(f"lane:{name}", "lane")
        self.graph.insert("lane", key=key, kind=kind, metric="time", unit="ms", direction="min", refutation_reach=reach, digest="d")
        for gate in GATES:
            self.graph.insert("lane_gate", lane=key, gate=gate, mandatory=1)
        return key

    def scope(self, lane: int, name: str = "cpu") -> int:
        key = self.node(f"scope:{lane}/{name}", "scope")
        self.graph.insert("scope", key=key, lane=lane, digest=name, chip=name, topology="1", problem="{}", metric="time", jax="0", libtpu="0", harness="h")
        return key

    def configuration(self, lane: int, **knobs: object) -> int:
        text = json.dumps(knobs, sort_keys=True)
        key = self.node(f"config:{lane}/{text}", "configuration")
        self.graph.insert("configuration", key=key, lane=lane, digest=text, knobs=text, code_sha="c")
        return key

    def hypothesis(self, lane: int, scope: int, configuration: int, **columns: object) -> int:
        key = self.node(f"hyp:{lane}/{scope}/{configuration}/{columns.get('whats_new', '')}/{columns.pop('name', '')}", "hypothesis")
        values = {
            "lever": "impl",
            "statement": "s",
            "mechanism": "m",
            "predicted_signal": "p",
            "falsification": "f",
            "origin": "test",
            "created_at": NOW,
            **columns,
        }
        self.graph.insert("hypothesis", key=key, lane=lane, scope=scope, configuration=configuration, **values)
        return key

    def experiment(self, name: str, lane: int, scope: int, configuration: int, hypothesis: int | None, **columns: object) -> int:
        key = self.node(f"exp:{name}", "experiment")
        values = {"role": "trial", "origin": "local", "backend": "cpu", "started_at": NOW, "finished_at": NOW, "outcome": "completed", **columns}
        self.graph.insert("experiment", key=key, lane=lane, scope=scope, configuration=configuration, hypothesis=hypothesis, **values)
        return key

    def artefact(self, experiment: int, role: str, data: bytes) -> str:
        sha = self.graph.objects.put(data)
        self.graph.insert("artefact", experiment=experiment, role=role, sha=sha, bytes=len(data))
        return sha

    def receipt(self, experiment: int, seq: int, step: str, prev: str = "", **content: object) -> str:
        body = canonical_json({"step": step, "prev": prev, **content})
        sha = sha256_hex(body)
        self.graph.insert("receipt", sha=sha, experiment=experiment, seq=seq, prev=prev, step=step, body=body)
        return sha

    def gate(self, experiment: int, name: str, result: str, receipt: str) -> None:
        self.graph.insert("gate", experiment=experiment, name=name, result=result, detail="d", evidence="{}", receipt=receipt)

    def measurement(self, experiment: int, leg: str, scope: int, **columns: object) -> int:
        values = {
            "op_point": "s1024",
            "metric": "time",
            "unit": "ms",
            "statistic": "median",
            "value": 1.0,
            "samples": 3,
            "timer": "perf_counter",
            "device": "cpu",
            **columns,
        }
        return self.graph.insert("measurement", experiment=experiment, leg=leg, scope=scope, **values)

    def comparison(self, experiment: int, candidate: int, baseline: int, **columns: object) -> int:
        values = {"speedup": 2.0, "ci_low": 1.9, "ci_high": 2.1, "noise_floor_frac": 0.05, "pairs": 3, "speedup_vs_reference": 2.0, **columns}
        return self.graph.insert("comparison", experiment=experiment, candidate=candidate, baseline=baseline, **values)

    def verdict(self, experiment: int, verdict: str = "supported", **columns: object) -> None:
        values = {"kind": "measured", "reason": "r", "inputs": "{}", "decided_at": NOW, **columns}
        self.graph.insert("verdict", experiment=experiment, verdict=verdict, **values)

    def file(self, experiment: int) -> None:
        self.graph.execute("UPDATE experiment SET filed = 1 WHERE key = ?", experiment)

    def finished(
        self,
        name: str,
        lane: int,
        scope: int,
        configuration: int,
        verdict: str = "supported",
        *,
        gates: dict[str, str] | None = None,
        comparison: dict[str, object] | None = None,
        filed: bool = True,
    ) -> int:
        """A whole experiment with hypothesis, receipts, measurements and verdict."""
        hypothesis = self.hypothesis(lane, scope, configuration)
        experiment = self.experiment(name, lane, scope, configuration, hypothesis)
        sha = self.artefact(experiment, "hlo", f"HloModule {name}".encode())
        results = gates if gates is not None else dict.fromkeys(GATES, "pass")
        gated = self.receipt(experiment, 0, "gates", artefacts={"hlo": sha}, gates=[{"name": n, "result": r} for n, r in results.items()])
        for gate, result in results.items():
            self.gate(experiment, gate, result, gated)
        a, b = self.measurement(experiment, "candidate", scope), self.measurement(experiment, "baseline", scope)
        self.comparison(experiment, a, b, **(comparison or {}))
        final = self.receipt(experiment, 1, "verdict", prev=gated, verdict=verdict)
        self.verdict(experiment, verdict, receipt=final)
        if filed:
            self.file(experiment)
        return experiment
