package client

// NewScheme exports newScheme.
var NewScheme = newScheme
