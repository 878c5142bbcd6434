"""Knowledge as data: concept pages, detectors, chip specs, and linking them to symbols."""
