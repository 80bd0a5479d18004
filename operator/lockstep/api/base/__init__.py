"""What all kinds are made of: names, field types, units, schema."""
