"""Knowledge as data: concept pages, detectors, chip specs, and linking them to symbols."""

from kgagent.knowledge.chips import Chip as Chip
from kgagent.knowledge.chips import Figure as Figure
from kgagent.knowledge.chips import chip_for as chip_for
from kgagent.knowledge.chips import load_chips as load_chips
from kgagent.knowledge.link import link as link
from kgagent.knowledge.pages import load_concepts as load_concepts
from kgagent.knowledge.pages import page_files as page_files
from kgagent.knowledge.pages import read_concepts as read_concepts
from kgagent.knowledge.pages import shipped_concepts as shipped_concepts
from kgagent.knowledge.records import Concept as Concept
from kgagent.knowledge.records import ConceptReport as ConceptReport
from kgagent.knowledge.records import LinkReport as LinkReport
from kgagent.knowledge.records import Problem as Problem
from kgagent.knowledge.sync import sync_concepts as sync_concepts
