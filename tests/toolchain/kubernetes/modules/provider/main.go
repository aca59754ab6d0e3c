// Pulumi's Kubernetes provider: its own main embeds two files that its release makes; here they are the module's sources,
// which the build lays over the names below.
package main

import (
	_ "embed"

	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/provider"
	"github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version"
)

//go:embed schema.json
var schema []byte

//go:embed terraform-mapping.json
var mapping []byte

func main() { provider.Serve("kubernetes", version.Version, schema, mapping) }
