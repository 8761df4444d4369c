# A CA in the working directory, what it signs and what it revokes: for tests that ask which certificates are taken.
# make_certificates of lib.sh is for those that only want TLS. What openssl says is in openssl.log.

EC=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

authority() { # NAME: NAME.pem, NAME.key
	openssl req -x509 "${EC[@]}" -keyout "$1.key" -out "$1.pem" -days 2 -subj "/CN=$1" 2>>openssl.log
}

certificate() { # NAME SUBJECT SAN [EXTENDED-KEY-USAGES]: NAME.pem, NAME.key, by ca
	{
		openssl req "${EC[@]}" -keyout "$1.key" -out "$1.req" -subj "$2"
		printf 'subjectAltName=%s\n%s' "$3" "${4:+extendedKeyUsage=$4
}" >"$1.ext"
		openssl x509 -req -in "$1.req" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$1.pem" -days 2 -extfile "$1.ext"
	} >>openssl.log 2>&1
}

# revoke AUTHORITY LIST CERTIFICATE...: a list of those alone; SINCE= and EXPIRES= say when it counts.
revoke() {
	local ca=(openssl ca -config ca.cnf -keyfile "$1.key" -cert "$1.pem") name
	: >index && printf 'unique_subject = no\n' >index.attr && echo 01 >crlnumber
	printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=2\n' >ca.cnf
	{
		for name in "${@:3}"; do "${ca[@]}" -revoke "$name.pem"; done
		"${ca[@]}" -gencrl -out "$2" ${SINCE:+-crl_lastupdate "$SINCE"} ${EXPIRES:+-crl_nextupdate "$EXPIRES"}
	} >>openssl.log 2>&1
}
