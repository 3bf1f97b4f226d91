"""Who answers the queries of a mechanism, and what each of them may see."""
