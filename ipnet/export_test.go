package ipnet

// ObjectName is the name of an interface in the dataplane.
var ObjectName = objectName
