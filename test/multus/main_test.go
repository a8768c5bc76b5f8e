// Package multus_test gives claims of Weft to Multus' own code, which decides which device a
// NetworkAttachmentDefinition gets. It is a module of its own, because Multus' packages need modules that Weft does
// not.
package multus_test
