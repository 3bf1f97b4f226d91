"""Private information retrieval: ask one server for a cell of a map without telling it which."""
