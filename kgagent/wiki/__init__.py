"""The Obsidian mirror of the graph: one page a node of interest, generated regions marked, all else the person's."""

from kgagent.wiki.render import Conflict as Conflict
from kgagent.wiki.render import WikiReport as WikiReport
from kgagent.wiki.render import render as render
