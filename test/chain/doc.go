// Package chain names programs of the CNI project and of Multus, which tests build and run: those of a distribution are older and do
// not speak CNI 1.1.0. It is a module of its own, because nothing else of Weft needs what they need.
package chain
