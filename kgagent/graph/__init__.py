"""The typed graph: store, records, search, neighbourhoods and ranks."""

from kgagent.graph.records import Edge as Edge
from kgagent.graph.records import Hit as Hit
from kgagent.graph.records import Neighbor as Neighbor
from kgagent.graph.records import Neighborhood as Neighborhood
from kgagent.graph.records import NewEdge as NewEdge
from kgagent.graph.records import NewNode as NewNode
from kgagent.graph.records import Node as Node
from kgagent.graph.records import plain as plain
from kgagent.graph.search import find as find
from kgagent.graph.store import Graph as Graph
from kgagent.graph.store import graph_is_lost as graph_is_lost
from kgagent.graph.store import open_graph as open_graph
from kgagent.graph.walk import neighbors as neighbors
from kgagent.graph.walk import shortest_path as shortest_path
