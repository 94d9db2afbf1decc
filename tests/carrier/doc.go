// Package carrier tests what is reported about a rank that is stopped or killed while it carries messages for other
// ranks.
package carrier
