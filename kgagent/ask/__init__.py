"""Questions about performance, answered from the graph with citations that hold."""

from kgagent.ask.answer import why as why
from kgagent.ask.records import Answer as Answer
from kgagent.ask.records import Citation as Citation
from kgagent.ask.records import Finding as Finding
from kgagent.ask.records import Here as Here
