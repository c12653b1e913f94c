"""A project as a whole: lineage and names."""
