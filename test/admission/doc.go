// Package admission holds the tests of Weft's admission policies: it evaluates their expressions as an API server does, with its
// own plugin, on requests that are in order and on attacks. It is a module of its own, because the API server's library brings
// thirty modules that nothing else of Weft needs.
package admission
