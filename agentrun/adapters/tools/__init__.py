"""Tools that a model can be given."""
