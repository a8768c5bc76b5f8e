// Package manifests has the custom resource definitions of Weft.
package manifests

import "embed"

// CRDs are the files of the custom resource definitions, in the directory crds.
//
//go:embed crds/*.yaml
var CRDs embed.FS
