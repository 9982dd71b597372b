// Package webserver has what the HTTP servers of the manager share: their certificates, and the limits of their connections.
package webserver
