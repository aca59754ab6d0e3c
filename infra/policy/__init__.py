"""What a region must be, whatever its configuration: rules over declared resources, for tests and Pulumi's engine."""
