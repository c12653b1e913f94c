"""A project as a whole: lineage, names, pipelines."""
