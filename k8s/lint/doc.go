// Package lint finds in files for kubectl what is wrong with pods' annotations, without a cluster.
package lint
