// Package chain pins the CNI plugins and Multus that tests build and run, because distributions package versions
// without CNI 1.1.0. It is a module of its own to keep their dependencies out of Weft's.
package chain
