"""The files of src import each other without a circle: lazy imports and those of type checking count."""

from __future__ import annotations

import grimp


def test_no_file_imports_itself_over_others() -> None:
    graph = grimp.build_graph(
        "mapveil", "mapveil_client", exclude_type_checking_imports=False, cache_dir=None
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # Take away modules that import nothing of what is left; what cannot be taken away lies on or above a circle.
    while leaves := {module for module, imported in imports.items() if not imported & imports.keys()}:
        imports = {module: imported for module, imported in imports.items() if module not in leaves}
    importers = {importer for importer in imports if any(importer in found for found in imports.values())}
    assert not importers, f"circles of imports among {sorted(importers)}"
