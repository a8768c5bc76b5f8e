// Package podmanager knows which attachments live here: it serves the CNI plugin and turns its calls into events.
package podmanager
