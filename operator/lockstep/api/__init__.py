"""The kinds of lockstep.dev as pydantic models: the one definition of the API."""
