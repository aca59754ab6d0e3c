"""Container images of the roles: built from this checkout, kept in a private registry, deployed by digest."""
