// Package left has ranks end in every way that keeps them from sending their last spans, and looks at what arrives.
package left
