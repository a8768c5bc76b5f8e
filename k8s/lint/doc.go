// Package lint finds in files for kubectl what is wrong with the annotations of pods and Services, without a cluster.
package lint
