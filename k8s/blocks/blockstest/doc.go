// Package blockstest has a cluster's store of blocks in memory, which fails as an API server does, and nodes that use
// it.
package blockstest
