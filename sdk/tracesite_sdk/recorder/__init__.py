"""The recorder: records what an agent does, without ever raising into it."""
