"""A file per engine: its `ROUTES` are the ways there, by name. `common` and `libtorch` help."""
