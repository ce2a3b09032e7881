// Package statev1 holds the generated types of rows that stores keep without
// reading them: conversation heads, committed messages, membership versions.
package statev1
