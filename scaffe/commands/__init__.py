"""The commands of `scaffe`, a family a module; each module's `add` gives its commands to the command line."""
